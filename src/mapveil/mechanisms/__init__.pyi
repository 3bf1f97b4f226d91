from mapveil.local.randomizers.disk_area import DiskArea as DiskArea
from mapveil.local.randomizers.generalized_response import (
    GeneralizedRandomizedResponse as GeneralizedRandomizedResponse,
)
from mapveil.local.randomizers.hadamard_response import HadamardResponse as HadamardResponse
from mapveil.local.randomizers.hierarchical_hashing import HierarchicalHashing as HierarchicalHashing
from mapveil.local.randomizers.local_hashing import LocalHashing as LocalHashing
from mapveil.local.randomizers.planar_laplace import PlanarLaplace as PlanarLaplace
from mapveil.local.randomizers.staircase_response import StaircaseResponse as StaircaseResponse
from mapveil.local.randomizers.subset_selection import SubsetSelection as SubsetSelection
from mapveil.local.randomizers.unary_encoding import UnaryEncoding as UnaryEncoding
from mapveil.mechanisms.adaptive_grid import AdaptiveGrid as AdaptiveGrid
from mapveil.mechanisms.adaptive_histogram import AdaptiveHistogram as AdaptiveHistogram
from mapveil.mechanisms.count_min_histogram import CountMinHistogram as CountMinHistogram
from mapveil.mechanisms.emd_heatmap import EmdHeatmap as EmdHeatmap
from mapveil.mechanisms.hierarchical_histogram import HierarchicalHistogram as HierarchicalHistogram
from mapveil.mechanisms.laplace_histogram import LaplaceHistogram as LaplaceHistogram
from mapveil.mechanisms.local_laplace import LocalLaplace as LocalLaplace
from mapveil.mechanisms.multiscale import Multiscale as Multiscale
from mapveil.mechanisms.private_fourier_kde import PrivateFourierKde as PrivateFourierKde
from mapveil.mechanisms.privtree import PrivTree as PrivTree
from mapveil.mechanisms.proportion_histogram import ProportionHistogram as ProportionHistogram
from mapveil.mechanisms.spatial_decomposition import SpatialDecomposition as SpatialDecomposition
from mapveil.mechanisms.sum_mechanism import SumMechanism as SumMechanism
from mapveil.mechanisms.thresholded_histogram import ThresholdedHistogram as ThresholdedHistogram
from mapveil.mechanisms.uniform_grid import UniformGrid as UniformGrid
from mapveil.random_features.federated_kde import FederatedKde as FederatedKde
from mapveil.random_features.fourier_kde import FourierKde as FourierKde
from mapveil.random_features.zero_features import ZeroFeatures as ZeroFeatures
from mapveil.trust.queries import NoisySums as NoisySums
from mapveil.trust.queries import Query as Query
from mapveil.trust.queries import Setting as Setting
